"""What operations cost: prices, the estimate before and the bill after.

price_sheet_file > prices, tiers
deployment > estimate, advice            before: a pair that somebody plans
month_to_date > summary > report_html    after: the hours of an operations log (pipeline/bill counts them)
                          summary_document
meter/log_reader > explain, what_if      one message, and the same log under other options
"""
