"""Functions on single values that no engine has in the form that expressions need: formats of time, JSON and JSONPath.

They are plain Python over stored values, so that every engine (and its oracle) can use or be compared with them.
"""
