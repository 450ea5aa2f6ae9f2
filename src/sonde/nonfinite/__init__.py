"""The watch: finds the layer, batch and item that produced the first NaN or infinity."""
