"""The built-in models. They are imported when a config names them, because torch is heavy."""
