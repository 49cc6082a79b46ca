package verbs

import (
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5"
	"github.com/goverbs/goverbs/provider/rxe"
)

// The drivers that every program can drive.
func init() {
	provider.Register(&rxe.Provider)
	provider.Register(&mlx5.Provider)
}

// providers returns those to choose from.
var providers = provider.Registered
