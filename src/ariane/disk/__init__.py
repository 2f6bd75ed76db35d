"""The file system behind one door: the real one, and one in memory that can fail on purpose."""

from ariane.disk.contract import Disk, Lock, MappedFile
from ariane.disk.real import RealDisk
from ariane.disk.simulated import CrashMode, SimulatedDisk

__all__ = ["CrashMode", "Disk", "Lock", "MappedFile", "RealDisk", "SimulatedDisk"]
