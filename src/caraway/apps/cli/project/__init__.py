"""The files of a new project (`caraway init`), as templates: each ends with `.template`."""
