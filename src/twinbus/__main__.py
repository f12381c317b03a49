from twinbus.cli.app import main

main()
