package verbs

import "testing"

// TestCounterPoints: counters can be created for each point.
func TestCounterPoints(t *testing.T) {
	d, _ := fakeContext(t)
	d.prov = &wqProvider{fakeProvider: d.prov.(*fakeProvider)}
	counters := must(d.CreateCounters(CountPackets, CountBytes))(t)
	if err := counters.Close(); err != nil {
		t.Error(err)
	}
}
