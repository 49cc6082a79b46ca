package main

import (
	"github.com/goverbs/goverbs/cmd/ibv/internal/perftest"
)

// perftestCommands returns the commands that measure bandwidth and latency.
func perftestCommands() []command {
	var all []command
	for _, c := range perftest.Commands() {
		all = append(all, command{c.Name, c.Summary, func(args []string) int { return c.Main("ibv "+c.Name, args) }})
	}
	return all
}
