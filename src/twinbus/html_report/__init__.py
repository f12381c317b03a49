"""Reports as one HTML page that needs nothing else: `page` has its parts, `plots` its drawings, `style.css` its look.

The bill of a month and the report of a rehearsal are such pages. There is no script, no font and nothing to download.
"""
