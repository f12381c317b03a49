"""The bill as a Spark job: an operations log in, counts and money by hour, day and month out.

    log > which files are new, which are unusable (hours) > counts of the touched hours (counts) > prices of hours (hour_sums)
        > money by hour and day (lines) > causes, months, spreadsheets (line_sums) > summary

Spark works on what grows with operations and lines: counts and lines. What is summed from those is the driver's.
Counts are kept apart from money: an hour's counts depend on the files of that hour only and are written again whenever one
of them changes, so a file that comes late or is billed twice does no harm. What an operation costs depends on all that
was before it in the month and on the price sheet, and is worked out from the counts in every run.
"""
