"""Examine this host and one configuration for `tailrace doctor`, and report what should be changed.

A check is a function of a `Host` that yields `HostFinding`s. It does not need root, changes nothing, leaves no file
behind, and sends no data to a running collector.
"""
