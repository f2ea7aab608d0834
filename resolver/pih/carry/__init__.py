"""Carrying a deployment to hosts without a network: one file that installs itself, and all to build it again there.

May import `bundle`, `build` and `lock`. What runs on such a host is `shell/`: POSIX sh and the tools of busybox.
"""
