package mutant

import "testing"

func TestChoose(t *testing.T) {
	var none *Set
	if none.Is(None+1) || none.Now(None+1) {
		t.Error("a nil Set makes mistakes")
	}
	var s Set
	for i, m := range Mistakes() {
		name := m.Name
		if name == "" || m.Means == "" {
			t.Fatalf("kind %d is not described", i+1)
		}
		if err := s.Choose(name, 3); err != nil {
			t.Fatal(err)
		}
		k := Kind(i + 1)
		if !s.Is(k) || s.Is(k%(kinds-1)+1) {
			t.Errorf("%s isn't on, or another is", name)
		}
		if now := [3]bool{s.Now(k), s.Now(k), s.Now(k)}; now != [3]bool{2: true} {
			t.Errorf("%s isn't made every third time", name)
		}
	}
	if err := s.Choose("nonsense", 1); err == nil || s.on != kinds-1 {
		t.Errorf("an unknown name: %v, on %d", err, s.on)
	}
	if err := s.Choose("", 0); err != nil || s != (Set{}) {
		t.Error("not off")
	}
}
