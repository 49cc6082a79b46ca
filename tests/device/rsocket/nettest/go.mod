module github.com/goverbs/goverbs/tests/device/rsocket/nettest

go 1.25.0

require (
	github.com/goverbs/goverbs v0.0.0
	golang.org/x/net v0.48.0
)

require golang.org/x/sys v0.47.0 // indirect

replace github.com/goverbs/goverbs => ../../../..
