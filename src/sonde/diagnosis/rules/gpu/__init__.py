"""Rules about devices: written against a stand-in, and not verified on a device."""
