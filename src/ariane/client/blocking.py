"""How what blocks is made of what awaits: one line for each method, nothing written twice.

    class Producer(Blocking[producer.Producer]):
        send_batch = blocking(producer.Producer.send_batch)

The method made so has the signature, the types and the docstring of its asyncio twin. It runs that
on the loop's thread and waits for it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, cast, overload

from ariane.client.loop_thread import LoopThread

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
A = TypeVar("A")


class Blocking(Generic[A]):
    """Something that blocks, and the asyncio object that does its work."""

    _twin: A
    _thread: LoopThread

    def __init__(self, twin: A, owner: Blocking[Any]) -> None:
        self._twin = twin
        self._thread = owner._thread


class _Closeable(Protocol):
    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    async def close(self) -> None: ...


B = TypeVar("B", bound=_Closeable)


class BlockingScope(Blocking[B]):
    """What is used in a `with` block."""

    def __enter__(self) -> Self:
        self._thread.run(self._twin.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread.is_running:  # else its client has closed it
            self._thread.run(self._twin.__aexit__(kind, error, trace))

    def close(self) -> None:
        """End, as leaving the `with` block does; may be called again."""
        if self._thread.is_running:
            self._thread.run(self._twin.close())


@overload
def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]: ...


@overload
def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
    then: Callable[[R, Any], T],
) -> Callable[Concatenate[Any, P], T]: ...


def blocking(method: Callable[..., Any], then: Callable[[Any, Any], Any] | None = None) -> Any:
    """The blocking twin of a method that awaits.

    `then` makes what is returned of the result and of the object called; on the loop's thread.
    """
    name = method.__name__

    @functools.wraps(method)
    def call(self: Blocking[Any], *arguments: Any, **named: Any) -> Any:
        work = getattr(self._twin, name)(*arguments, **named)
        return self._thread.run(work if then is None else _then(work, then, self))

    return _returning(call, then)


@overload
def on_loop(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], R]: ...


@overload
def on_loop(
    method: Callable[Concatenate[Any, P], R],
    then: Callable[[R, Any], T],
) -> Callable[Concatenate[Any, P], T]: ...


def on_loop(method: Callable[..., Any], then: Callable[[Any, Any], Any] | None = None) -> Any:
    """The twin, for other threads, of a method that touches what the loop's thread owns."""
    name = method.__name__

    @functools.wraps(method)
    def call(self: Blocking[Any], *arguments: Any, **named: Any) -> Any:
        def work() -> Any:
            result = getattr(self._twin, name)(*arguments, **named)
            return result if then is None else then(result, self)

        return self._thread.call(work)

    return _returning(call, then)


class Forwarded(Generic[P, R]):
    """A method of the object's own producer, under the same name."""

    def __init__(self, method: Callable[Concatenate[Any, P], R]) -> None:
        self.__func__ = method  # as bound methods have it; `mock.patch` looks there for `async`
        self._name = method.__name__
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> Callable[Concatenate[Any, P], R]: ...

    @overload
    def __get__(self, owner: object, kind: type) -> Callable[P, R]: ...

    def __get__(self, owner: Any, kind: type) -> Callable[..., R]:
        # A call less for each message than a method that calls another would cost.
        found = self.__func__ if owner is None else getattr(owner._producer, self._name)
        return cast("Callable[..., R]", found)


async def _then(work: Coroutine[Any, Any, Any], then: Callable[[Any, Any], Any], owner: Any) -> Any:
    return then(await work, owner)


def _returning(call: Callable[..., Any], then: Callable[[Any, Any], Any] | None) -> Any:
    """Have `help` tell what is returned."""
    if then is not None:
        returned = then if isinstance(then, type) else then.__annotations__["return"]
        told = inspect.signature(call).replace(return_annotation=returned)
        call.__signature__ = told  # type: ignore[attr-defined]
    return call
