package verbs

import (
	"errors"
	"testing"
)

func TestGUID(t *testing.T) {
	want := GUID{0x50, 0x54, 0x00, 0xff, 0xfe, 0x12, 0x0a, 0x56}
	if got := want.String(); got != "5054:00ff:fe12:0a56" {
		t.Errorf("String() = %q", got)
	}
	for _, s := range []string{"5054:00ff:fe12:0a56", "505400fffe120a56", "5054:00FF:FE12:0A56"} {
		if got, err := ParseGUID(s); err != nil || got != want {
			t.Errorf("ParseGUID(%q) = %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "rxe0", "505400fffe120a5", "505400fffe120a5678", "50:5400ff:fe120a:56", ":::505400fffe120a56", "505400fffe120axx"} {
		if got, err := ParseGUID(s); !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseGUID(%q) = %v, %v, want a refusal", s, got, err)
		}
	}
}
