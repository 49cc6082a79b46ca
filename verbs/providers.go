package verbs

import (
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5"
	"github.com/goverbs/goverbs/provider/rxe"
)

// The providers that are part of every program.
func init() {
	provider.Register(&rxe.Provider)
	provider.Register(&mlx5.Provider)
}

// providers returns the available providers.
var providers = provider.Registered
