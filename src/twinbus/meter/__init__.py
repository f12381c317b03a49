"""The operations log: what a namespace or a pair does for its clients, from the report to Parquet files and back.

    operation > book > recorder > spool > rotation > log_writer      log_check > log_reader
    a value     rows     a thread   a file   a process    Parquet        which files     Arrow rows

`log_format` has the folders, columns and ids of a log; `application_log` is a log for an application whose namespaces keep
none. `twinbus.cost` prices what the log holds.
"""
