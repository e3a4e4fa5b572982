"""Functions of single values that no engine offers with the meaning that expressions need: formats of time, and JSON.

They are plain Python over stored values, so that an engine can call them, and a test can compare an engine with them.
"""
