def write_page(path, record):
    pass
