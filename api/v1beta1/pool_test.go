package v1beta1

import (
	"slices"
	"testing"
)

func TestPool_OfSeveralDevicesIsOneForEach(t *testing.T) {
	disks := &DeviceSelector{Model: "X", Count: 3}
	got := EachDevice([]PoolSpec{{Name: "files"}, {Name: "fast", Devices: disks, Reserved: "1%"}, {Name: "one", Devices: &DeviceSelector{Model: "Y"}}})
	var names []string
	for _, p := range got {
		names = append(names, p.Name)
		if p.Devices != nil && p.Devices.Count != 0 {
			t.Errorf("%s would be several again", p.Name)
		}
	}
	if !slices.Equal(names, []string{"files", "fast", "fast.2", "fast.3", "one"}) || got[3].Reserved != "1%" || got[3].Devices.Model != "X" || disks.Count != 3 {
		t.Errorf("got %+v of %+v", got, disks)
	}
	if again := EachDevice(got); len(again) != len(got) {
		t.Errorf("again: %+v", again)
	}
}

func TestPool_OfOneDeviceHasItsNameAndNumber(t *testing.T) {
	for pool, number := range map[string]int{"fast": 1, "fast.2": 2, "fast.16": 16} {
		if name, is := InSpec(pool); name != "fast" || is != number || OfDevice(name, is) != pool {
			t.Errorf("%q: %q, %d", pool, name, is)
		}
	}
	if all := EachDevice([]PoolSpec{{Name: "a", Devices: &DeviceSelector{Count: 1 << 30}}}); len(all) != MostDevices {
		t.Errorf("%d pools", len(all))
	}
}

func TestPool_IsNamedByARequest(t *testing.T) {
	for _, test := range []struct {
		request, pool string
		want          bool
	}{
		{"fast", "fast", true},
		{"fast", "fast.2", true},
		{"fast.2", "fast.2", true},
		{"fast.2", "fast", false},
		{"fast.2", "fast.3", false},
		{"slow,fast", "fast.2", true},
		{"slow,fast", "faster", false},
		{"", "fast", false},
	} {
		if NamesPool(test.request, test.pool) != test.want {
			t.Errorf("%q and %q: want %t", test.request, test.pool, test.want)
		}
	}
}

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
