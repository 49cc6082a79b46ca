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

// A fakeDevice has its GUID, and an index that may be unknown.
type fakeDevice struct {
	name  string
	guid  verbs.GUID
	index uint32
}

func (d fakeDevice) NodeGUID() verbs.GUID { return d.guid }

func (d fakeDevice) Index() (uint32, error) {
	if d.index == noIndex {
		return 0, errors.New("unknown")
	}
	return d.index, nil
}

// The kernel's index decides, and the GUID only where one of the indices is unknown. An unconfigured
// GUID is 0, and is compared like any other.
func TestChoose(t *testing.T) {
	alone, twin, unset := verbs.GUID{7: 1}, verbs.GUID{7: 2}, verbs.GUID{}
	devs := []fakeDevice{
		{"bridge", twin, 0}, {"alone", alone, 1}, {"port", twin, 2}, {"bare", unset, 5},
		{"hidden", verbs.GUID{7: 4}, noIndex},
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
		{deviceKey{twin, 1}, "alone", nil, ""},
		{deviceKey{unset, 5}, "bare", nil, ""},
		{deviceKey{alone, noIndex}, "alone", nil, ""},
		{deviceKey{unset, noIndex}, "bare", nil, ""},
		{deviceKey{verbs.GUID{7: 4}, 9}, "hidden", nil, ""},
		{deviceKey{twin, 9}, "", verbs.ErrNoDevice, "0000:0000:0000:0002"},
		{deviceKey{twin, noIndex}, "", nil, "2 devices"},
		{deviceKey{verbs.GUID{7: 3}, noIndex}, "", verbs.ErrNoDevice, "0000:0000:0000:0003"},
	} {
		d, err := choose(devs, test.key)
		if d.name != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%v: got %q, %v", test.key, d.name, err)
		}
		if err != nil && (test.err != nil && !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%v: got %v", test.key, err)
		}
	}
	if devs[0].name != "bridge" || devs[1].name != "alone" || devs[2].name != "port" {
		t.Errorf("the list is now %v", devs)
	}
}

// Closing is repeated until it succeeds. The first error is returned, unless it is ErrBusy.
func TestCloseInTime(t *testing.T) {
	other := errors.New("other")
	for _, test := range []struct {
		errs []error
		want error
	}{
		{[]error{nil}, nil},
		{[]error{other, nil}, other},
		{[]error{other, ErrBusy, other, nil}, other},
		{[]error{ErrBusy, nil}, nil},
		{append(slices.Repeat([]error{ErrBusy}, 50), nil), nil},
		{[]error{ErrBusy, other, nil}, nil},
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
