"""Frames over asyncio: connections, servers, clients."""
