module cgobench

go 1.25.0
