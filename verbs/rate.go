package verbs

import "github.com/goverbs/goverbs/uapi"

// A Rate limits the rate at which packets are sent to a peer, in the encoding of paths (enum
// ibv_rate; InfiniBand Architecture Specification, volume 1, 15.2.5.16). The zero Rate is
// the port's rate.
type Rate uint8

// The names state the rate. RateMax is the port's rate.
const (
	RateMax      Rate = Rate(uapi.IB_RATE_PORT_CURRENT)
	Rate2500Mbps Rate = Rate(uapi.IB_RATE_2_5_GBPS)
	Rate5Gbps    Rate = Rate(uapi.IB_RATE_5_GBPS)
	Rate10Gbps   Rate = Rate(uapi.IB_RATE_10_GBPS)
	Rate14Gbps   Rate = Rate(uapi.IB_RATE_14_GBPS)
	Rate20Gbps   Rate = Rate(uapi.IB_RATE_20_GBPS)
	Rate25Gbps   Rate = Rate(uapi.IB_RATE_25_GBPS)
	Rate28Gbps   Rate = Rate(uapi.IB_RATE_28_GBPS)
	Rate30Gbps   Rate = Rate(uapi.IB_RATE_30_GBPS)
	Rate40Gbps   Rate = Rate(uapi.IB_RATE_40_GBPS)
	Rate50Gbps   Rate = Rate(uapi.IB_RATE_50_GBPS)
	Rate56Gbps   Rate = Rate(uapi.IB_RATE_56_GBPS)
	Rate60Gbps   Rate = Rate(uapi.IB_RATE_60_GBPS)
	Rate80Gbps   Rate = Rate(uapi.IB_RATE_80_GBPS)
	Rate100Gbps  Rate = Rate(uapi.IB_RATE_100_GBPS)
	Rate112Gbps  Rate = Rate(uapi.IB_RATE_112_GBPS)
	Rate120Gbps  Rate = Rate(uapi.IB_RATE_120_GBPS)
	Rate168Gbps  Rate = Rate(uapi.IB_RATE_168_GBPS)
	Rate200Gbps  Rate = Rate(uapi.IB_RATE_200_GBPS)
	Rate300Gbps  Rate = Rate(uapi.IB_RATE_300_GBPS)
	Rate400Gbps  Rate = Rate(uapi.IB_RATE_400_GBPS)
	Rate600Gbps  Rate = Rate(uapi.IB_RATE_600_GBPS)
	Rate800Gbps  Rate = Rate(uapi.IB_RATE_800_GBPS)
	Rate1600Gbps Rate = Rate(uapi.IB_RATE_1600_GBPS)
)

// rates are the rates in Mb/s, with the lanes' encoding: 100 Gb/s are four lanes of 25.78125.
var rates = [...]struct {
	rate Rate
	mbps int
}{
	{Rate2500Mbps, 2500}, {Rate5Gbps, 5000}, {Rate10Gbps, 10000}, {Rate14Gbps, 14062}, {Rate20Gbps, 20000},
	{Rate25Gbps, 25781}, {Rate28Gbps, 28125}, {Rate30Gbps, 30000}, {Rate40Gbps, 40000}, {Rate50Gbps, 53125},
	{Rate56Gbps, 56250}, {Rate60Gbps, 60000}, {Rate80Gbps, 80000}, {Rate100Gbps, 103125}, {Rate112Gbps, 112500},
	{Rate120Gbps, 120000}, {Rate168Gbps, 168750}, {Rate200Gbps, 206250}, {Rate300Gbps, 309375}, {Rate400Gbps, 425000},
	{Rate600Gbps, 637500}, {Rate800Gbps, 850000}, {Rate1600Gbps, 1700000},
}

// RateOf returns the Rate of exactly mbps Mb/s, as Mbps returns it, or RateMax if there is
// none (mbps_to_ibv_rate).
func RateOf(mbps int) Rate {
	for _, r := range rates {
		if r.mbps == mbps {
			return r.rate
		}
	}
	return RateMax
}

// Mbps returns the rate in Mb/s (ibv_rate_to_mbps), or 0 for RateMax and for an unknown Rate.
func (r Rate) Mbps() int {
	for _, x := range rates {
		if x.rate == r {
			return x.mbps
		}
	}
	return 0
}

func (r Rate) String() string { return uapi.EnumIbRate.Short(uint64(r)) }
