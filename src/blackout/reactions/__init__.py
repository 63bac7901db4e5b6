"""Reaction networks: processes whose rates depend on several components, trained and sampled by rates alone."""

from typing import TYPE_CHECKING

from blackout.registry import Registry, exports

if TYPE_CHECKING:
    from blackout.reactions.clock import LogClock as LogClock
    from blackout.reactions.divergence import path_bound as path_bound
    from blackout.reactions.divergence import path_divergence as path_divergence
    from blackout.reactions.equilibria import Dimerisation as Dimerisation
    from blackout.reactions.equilibria import Exchange as Exchange
    from blackout.reactions.model import ReactionModel as ReactionModel
    from blackout.reactions.network import ReactionNetwork as ReactionNetwork
    from blackout.reactions.reverse import sample_reverse as sample_reverse

REACTIONS = Registry("reaction network")
REACTIONS.add("mass-action", "blackout.reactions.network:ReactionNetwork", "any stoichiometry, mass-action rates")
REACTIONS.add("exchange", "blackout.reactions.equilibria:Exchange", "units move between neighbours of a grid")
REACTIONS.add("dimerisation", "blackout.reactions.equilibria:Dimerisation", "2 A <-> B")

__getattr__, _names = exports(__name__)
__all__ = ["REACTIONS", *_names]
