package v1beta1

import "testing"

func TestPool_ReadsHowMuchMayBePromised(t *testing.T) {
	for text, want := range map[string]float64{"": 0, "0.5": 0.5, "1": 1, "100": 100} {
		p := PoolSpec{Overcommit: text}
		if got, err := p.OvercommitTimes(); err != nil || got != want {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"much", "0", "-1", "100.1", "NaN", "Inf", " 1"} {
		p := PoolSpec{Overcommit: text}
		if got, err := p.OvercommitTimes(); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestPool_ReadsWhatIsKeptFree(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "0": "0", "0%": "0%", "5%": "5%", "99.9%": "99.9%", "1Ki": "1024", "1.5Gi": "1610612736", "2P": "2000000000000000",
	} {
		p := PoolSpec{Reserved: text}
		if got, err := p.ReservedRoom(); err != nil || got != want {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"some", "-1", "-1%", "100%", "NaN%", "%", "5GB", "1 Gi"} {
		p := PoolSpec{Reserved: text}
		if got, err := p.ReservedRoom(); err == nil {
			t.Errorf("%q is %q", text, got)
		}
	}
}
