package rdmacm

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

type fakeDevice struct {
	name string
	guid verbs.GUID
}

func (d fakeDevice) Name() string         { return d.name }
func (d fakeDevice) NodeGUID() verbs.GUID { return d.guid }

// Among devices with the same GUID, the kernel's index decides.
func TestChoose(t *testing.T) {
	alone, twin := verbs.GUID{7: 1}, verbs.GUID{7: 2}
	devs := []fakeDevice{{"bridge", twin}, {"alone", alone}, {"port", twin}}
	names := map[uint32]string{0: "bridge", 1: "alone", 2: "port", 3: "gone"}
	gone := errors.New("no such index")
	asked := 0
	nameOf := func(index uint32) (string, error) {
		asked++
		if name, ok := names[index]; ok {
			return name, nil
		}
		return "", gone
	}
	for _, test := range []struct {
		key  deviceKey
		want string
		err  error
		says string
	}{
		{deviceKey{twin, 0}, "bridge", nil, ""},
		{deviceKey{twin, 2}, "port", nil, ""},
		{deviceKey{alone, 1}, "alone", nil, ""},
		{deviceKey{alone, noIndex}, "alone", nil, ""},
		{deviceKey{twin, 1}, "", verbs.ErrNoDevice, "alone"},
		{deviceKey{twin, 3}, "", verbs.ErrNoDevice, "gone"},
		{deviceKey{twin, 9}, "", gone, "2 devices"},
		{deviceKey{twin, noIndex}, "", nil, "2 devices"},
		{deviceKey{verbs.GUID{7: 3}, 0}, "", verbs.ErrNoDevice, "0000:0000:0000:0003"},
	} {
		d, err := choose(devs, test.key, nameOf)
		if d.name != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%v: got %q, %v", test.key, d.name, err)
		}
		if err != nil && (test.err != nil && !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%v: got %v", test.key, err)
		}
	}
	if asked != 5 {
		t.Errorf("the name was asked for %d times, want 5", asked)
	}
	if devs[0].name != "bridge" || devs[1].name != "alone" || devs[2].name != "port" {
		t.Errorf("the list is now %v", devs)
	}
}

// Closing a Device is repeated while it is busy, and after no other error.
func TestCloseInTime(t *testing.T) {
	other := errors.New("other")
	for _, test := range []struct {
		errs []error
		want error
	}{
		{[]error{nil}, nil},
		{[]error{other}, other},
		{[]error{ErrBusy, nil}, nil},
		{append(slices.Repeat([]error{ErrBusy}, 50), nil), nil},
		{[]error{ErrBusy, other}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			left := test.errs
			err := closeInTime(closeFunc(func() error {
				if len(left) == 0 {
					t.Fatal("closed again")
				}
				err := left[0]
				left = left[1:]
				return err
			}))
			if err != test.want {
				t.Errorf("%v: got %v", test.errs, err)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if len(left) > 0 {
				t.Errorf("%d of %d times closed", len(test.errs)-len(left), len(test.errs))
			}
		})
	}
}
