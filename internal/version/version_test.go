package version

import (
	"regexp"
	"testing"
)

func TestVersionOfBuild(t *testing.T) {
	if s := Of("ibv"); !regexp.MustCompile(`^ibv \S.*, (go|devel)\S.*, \w+/\w+$`).MatchString(s) {
		t.Errorf("got %q", s)
	}
}
