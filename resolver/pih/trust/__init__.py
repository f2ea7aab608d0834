"""Trust: which plugins from outside the source tree may be chosen, and on whose word.

May import `catalog`, `profile` and `pih_steps`. Nothing of a plugin is imported or run here: a manifest is data, and
is read only to say what is refused until its signature, or the profile's own word, covers it.
"""

from pih.trust.load import Offers, check_named, here, load

__all__ = ["Offers", "check_named", "here", "load"]
