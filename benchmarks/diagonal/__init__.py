"""The honest diagonal: losses that tools report, beside the losses that there were."""
