"""Examine this host and one configuration for `tailrace doctor`, and say what to change.

A check is a function of a `Host` that yields `HostFinding`s; `examine` runs them all. No check needs root,
changes anything, leaves a file behind or sends a byte to a running collector.
"""
