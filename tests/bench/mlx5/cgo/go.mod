module cgobench

go 1.26.0
