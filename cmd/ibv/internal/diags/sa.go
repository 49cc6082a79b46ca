package diags

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/goverbs/goverbs/sa"
)

// administration returns the client for the administration of the subnet (SA).
func (c *Client) administration() (*sa.Client, error) {
	if c.sa != nil {
		return c.sa, nil
	}
	a, err := sa.NewClient(c.port, sa.Options{LID: c.SM.LID, Timeout: c.Timeout, Retries: retries, SMKey: c.SMKey})
	if err == nil {
		c.sa = a
	}
	return a, err
}

// ByGUID asks the SA for the LID of a port with this GUID, which is in hexadecimal after 0x.
func (c *Client) ByGUID(ctx context.Context, text string) (Target, error) {
	guid, err := strconv.ParseUint(text, 0, 64)
	if err != nil || guid == 0 {
		return Target{}, fmt.Errorf("%q is no GUID", text)
	}
	own, err := netip.ParseAddr(attribute(c.name, "gids/0"))
	if err != nil {
		return Target{}, fmt.Errorf("%v has no GID", c.name)
	}
	a, err := c.administration()
	if err != nil {
		return Target{}, err
	}
	p := sa.PathRecord{SGID: own.As16(), DGID: own.As16(), Count: 1}
	for i := range 8 {
		p.DGID[8+i] = byte(guid >> (56 - 8*i))
	}
	p, err = a.Path(ctx, p, sa.PathSGID|sa.PathDGID|sa.PathCount)
	if errors.Is(err, sa.NoRecords) {
		return Target{}, fmt.Errorf("the subnet has no port with the GUID %#016x", guid)
	}
	if err != nil {
		return Target{}, err
	}
	if p.DLID == 0 || p.DLID > maxLID {
		return Target{}, fmt.Errorf("the subnet's administration says that GUID %#016x has LID %d", guid, p.DLID)
	}
	return Target{LID: p.DLID}, nil
}
