"""What a namespace keeps, in a folder or in databases, and how that is copied.

holdings          folder or databases, catalog, root key, and where the stores are
data_folder       the folder, which one process holds at a time
folder_lock       the file locks in it
store_addresses   what --store names
backup            a copy of the folder while it is in use, and a folder made of one
copy_place        where both may be, whether they fit there, and whose they are
forwarding_pause  why no message moves from one store to another meanwhile
namespace_copy    a namespace moved between a folder and databases
copy_marks        what keeps half of one from being served
restored_stores   stores that were taken back in time, made fit to be served
"""
