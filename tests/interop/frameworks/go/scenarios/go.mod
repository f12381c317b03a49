module twinbus/scenarios

go 1.24.6
