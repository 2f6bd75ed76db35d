"""Figures: the runs of a case, the rows they give, and how rows are shown.

A row holds our figure and the peer's, the bar in words and whether it is met. A bar must be met, an
aim need not. `None` as the peer's
figure means that the bar does not need one.
"""

from dataclasses import asdict, dataclass, field

from benchmarks.measure import Run, median

OURS, APACHE = "ariane", "apache"


@dataclass(frozen=True)
class Row:
    """One figure of the table."""

    case: str
    what: str
    unit: str
    ours: float
    peer: float | None
    bar: str
    met: bool | None  # None: shown, not judged
    peer_name: str = APACHE
    is_aim: bool = False  # the bar is what we would like: a miss is told, and fails nothing

    @property
    def fails(self) -> bool:
        """Whether the bar is one that must be met, and is not."""
        return self.met is False and not self.is_aim

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass
class Figures:
    """The runs of one case, and the rows they give."""

    case: str
    runs: dict[str, list[Run]]
    rows: list[Row] = field(default_factory=list)

    def median(self, key: str, peer: str = APACHE) -> tuple[float, float | None]:
        theirs = self.runs.get(peer)
        return median(self.runs[OURS], key), median(theirs, key) if theirs else None

    def times_at_least(
        self, what: str, unit: str, key: str, factor: float, peer: str = APACHE
    ) -> None:
        ours, theirs = self.median(key, peer)
        met = None if theirs is None else ours >= factor * theirs
        self.rows.append(Row(self.case, what, unit, ours, theirs, f">= {factor:g}x", met, peer))

    def share_at_most(
        self, what: str, unit: str, key: str, divisor: float, peer: str = APACHE
    ) -> None:
        ours, theirs = self.median(key, peer)
        met = None if theirs is None else ours <= theirs / divisor
        self.rows.append(Row(self.case, what, unit, ours, theirs, f"<= 1/{divisor:g}", met, peer))

    def at_least(self, what: str, unit: str, key: str, least: float) -> None:
        ours = median(self.runs[OURS], key)
        self.rows.append(Row(self.case, what, unit, ours, None, f">= {least:,g}", ours >= least))

    def aims_at(self, what: str, unit: str, key: str, least: float) -> None:
        ours = median(self.runs[OURS], key)
        bar = f"aim: {least:,.0f}"
        self.rows.append(Row(self.case, what, unit, ours, None, bar, ours >= least, is_aim=True))

    def shown(self, what: str, unit: str, key: str, peer: str = APACHE) -> None:
        ours, theirs = self.median(key, peer)
        self.rows.append(Row(self.case, what, unit, ours, theirs, "", None, peer))


def table(rows: list[Row]) -> str:
    """The rows as text, one line each."""
    lines = [f"{'case':12} {'what':34} {'ariane':>12} {'peer':>12} {'ratio':>8}  bar"]
    for row in rows:
        peer = "" if row.peer is None else figure(row.peer)
        ratio = "" if not row.peer else f"{row.ours / row.peer:.3g}x"
        missed = "aim missed" if row.is_aim else "FAIL"
        verdict = {True: "pass", False: missed, None: ""}[row.met]
        unit = f" [{row.unit}]" if row.unit else ""
        name = "" if row.peer is None or row.peer_name == APACHE else f" ({row.peer_name})"
        lines.append(
            f"{row.case:12} {row.what + unit:34} {figure(row.ours):>12} {peer:>12} {ratio:>8}"
            f"  {row.bar:22} {verdict}{name}"
        )
    return "\n".join(lines)


def figure(value: float) -> str:
    """A number with as many digits as it deserves."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
