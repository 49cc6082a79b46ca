package monitor_test

import (
	"context"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/ib"
	"github.com/goverbs/goverbs/monitor"
	"github.com/goverbs/goverbs/umad"
)

// The program prints all ports, and how many bytes they have transferred.
func ExampleHost_Counters() {
	ctx := context.Background()
	var host monitor.Host
	ports, err := host.Ports(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range ports {
		fmt.Printf("%v is %v: %d Gb/s\n", p, p.State, p.Rate/1e9)
		counters, err := host.Counters(ctx, p.Device, p.Number)
		if err != nil {
			log.Fatal(err)
		}
		for _, c := range counters {
			if c.Unit == monitor.UnitBytes {
				fmt.Printf("  %s: %d bytes, from %v\n", c.Name, c.Value, c.Source)
			}
		}
	}
}

// The program prints the counters of a switch's port, which it queries through a port of this
// host.
func ExamplePMA() {
	ctx := context.Background()
	own, err := monitor.Host{}.Port(ctx, "mlx5_0", 1)
	if err != nil || own.State != ib.PortActive {
		log.Fatal(own.State, err)
	}
	p, err := umad.Open(own.Device, own.Number)
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	pma, err := monitor.NewPMA(p, monitor.PMAOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer pma.Close()
	const lid, port = 2, 17 // see ibv ibnetdiscover
	counters, err := pma.Counters(ctx, lid, port)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range counters {
		fmt.Println(c.Name, c.Value, c.Unit)
	}
}
