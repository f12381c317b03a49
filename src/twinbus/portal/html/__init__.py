"""HTML as values: texts and figures in, markup out in which every text is escaped.

markup      elements; the only place where text becomes HTML
layout      the frame of a page: head, navigation, title
parts       tables, figures, notices, forms
plots       SVG: lines over time, the heat map of fragments
"""
