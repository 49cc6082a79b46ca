package sa_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"

	"github.com/goverbs/goverbs/sa"
	"github.com/goverbs/goverbs/umad"
)

// The client queries the SA for all nodes, and for a path to one of them.
func Example() {
	port, err := umad.Open("mlx5_0", 1)
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	client, err := sa.NewClient(port, sa.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	nodes, err := client.Nodes(ctx, sa.NodeRecord{}, 0)
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range nodes {
		fmt.Printf("LID %d: %s\n", n.LID, n.Description)
	}
	query := sa.PathRecord{SGID: netip.MustParseAddr("fe80::1").As16(), DGID: netip.MustParseAddr("fe80::2").As16(), Count: 1}
	path, err := client.Path(ctx, query, sa.PathSGID|sa.PathDGID|sa.PathCount)
	if errors.Is(err, sa.NoRecords) {
		log.Fatal("there is no such path")
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("LID %d, service level %d\n", path.DLID, path.SL)
}

// A port joins an existing multicast group, and leaves it.
func ExampleClient_Join() {
	port, err := umad.Open("mlx5_0", 1)
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	client, err := sa.NewClient(port, sa.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	member := sa.MCMemberRecord{
		MGID: netip.MustParseAddr("ff12:401b:ffff::1").As16(), PortGID: netip.MustParseAddr("fe80::1").As16(), JoinState: sa.JoinFull,
	}
	group, err := client.Join(ctx, member, sa.MemberJoin)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("LID %#x, Q_Key %#x\n", group.MLID, group.QKey)
	if _, err := client.Leave(ctx, member, sa.MemberJoin); err != nil {
		log.Fatal(err)
	}
}
