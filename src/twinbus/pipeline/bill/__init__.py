"""The bill as a Spark job: an operations log in, counts and money by hour, day and month out.

    log > which files are new, which are sick (hours) > counts of the touched hours (counts) > money (lines) > summary

Counts are kept apart from money: an hour's counts depend on the files of that hour only and are written anew whenever one
of them changes, so a file that comes late or is billed twice does no harm. What an operation costs depends on all that
was before it in the month and on the price sheet, and is worked out from the counts in every run.
"""
