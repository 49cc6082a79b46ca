module example.org/foreign

go 1.25
