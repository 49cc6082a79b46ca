package doctor

// linkModes are the speeds of ranges of link modes, in Mb/s (linux/ethtool.h,
// ETHTOOL_LINK_MODE_…_BIT). Bits between the ranges are not speeds.
var linkModes = []struct{ first, last, speed int }{
	{0, 1, 10}, {2, 3, 100}, {4, 5, 1000}, {12, 12, 10000}, {15, 15, 2500}, {17, 17, 1000}, {18, 20, 10000},
	{21, 22, 20000}, {23, 26, 40000}, {27, 30, 56000}, {31, 33, 25000}, {34, 35, 50000}, {36, 39, 100000},
	{40, 40, 50000}, {41, 41, 1000}, {42, 46, 10000}, {47, 47, 2500}, {48, 48, 5000}, {52, 56, 50000},
	{57, 61, 100000}, {62, 66, 200000}, {67, 67, 100}, {68, 68, 1000}, {69, 73, 400000}, {75, 79, 100000},
	{80, 84, 200000}, {85, 89, 400000}, {93, 98, 800000},
}

// modeSpeed returns the speed of a link mode, 0 if it has none.
func modeSpeed(bit int) int {
	for _, m := range linkModes {
		if m.first <= bit && bit <= m.last {
			return m.speed
		}
	}
	return 0
}
