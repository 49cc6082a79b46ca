package verbs

import (
	"github.com/goverbs/goverbs/provider"
	"github.com/goverbs/goverbs/provider/mlx5"
	"github.com/goverbs/goverbs/provider/rxe"
)

// providers are the drivers that this build of the library can drive.
var providers = []*provider.Provider{
	&rxe.Provider,
	&mlx5.Provider,
}
