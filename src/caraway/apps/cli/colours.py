"""The colours in which commands show the states of a stack's parts."""

from caraway.process.children.part import PartState

COLOURS = {
    PartState.RUNNING: "green",
    PartState.FAILED: "red",
    PartState.UNRESPONSIVE: "red",
    PartState.RESTARTING: "yellow",
    PartState.STOPPED: "dim",
}
