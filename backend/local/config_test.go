package local

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestParsePool_ReadsEveryKey(t *testing.T) {
	for text, want := range map[string]PoolConfig{
		"name=fast,engine=Directory,path=/srv/fast/,overcommit=1.5,reserved=10Gi,trashRetention=24h": {
			Name: "fast", Engine: "directory", Path: "/srv/fast", Overcommit: 1.5, Reserved: "10Gi", TrashRetention: 24 * time.Hour,
		},
		"name=a,path=/a": {Name: "a", Engine: "image", Path: "/a", Overcommit: 1, Reserved: "5%", TrashRetention: 24 * time.Hour},
		"name=a,path=/a,trashRetention=0s": {
			Name: "a", Engine: "image", Path: "/a", Overcommit: 1, Reserved: "5%", TrashRetention: backend.NoTrash,
		},
	} {
		got, err := ParsePool(text, time.ParseDuration)
		if err != nil || got != want || got.complete() != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
	}
}

// docs/api.md promises that these do not change within a version of the API.
func TestPoolConfig_DefaultsAreThoseOfTheVersionOfTheAPI(t *testing.T) {
	c := PoolConfig{Name: "fast", Path: "/srv/fast"}
	check.OK(t, c.complete())
	if c.Engine != "image" || c.Overcommit != 1 || c.Reserved != "5%" || c.TrashRetention != 24*time.Hour || c.RequireMount {
		t.Errorf("a pool of which nothing is said is %+v", c)
	}
}

func TestParsePool_ErrorNamesTheFaultAndTheAllowedValues(t *testing.T) {
	for s, words := range map[string][]string{
		"":                                   {"key=value", poolKeys},
		"name=a":                             {"path", "absolute"},
		"name=a,path=relative":               {`"relative"`, "absolute"},
		"path=/a":                            {"name", "1 to 63"},
		"name=A_b,path=/a":                   {`"A_b"`, "a-z"},
		"name=a,path=/a,engine=zfs":          {`"zfs"`, "Image or Directory"},
		"name=a,path=/a,speed=fast":          {`"speed"`, poolKeys},
		"name=a,path=/a,name=b":              {"name", "twice"},
		"name=a,path=/a,overcommit=x":        {`"x"`, "number"},
		"name=a,path=/a,overcommit=0":        {"overcommit 0"},
		"name=a,path=/a,overcommit=-1":       {"-1", "above 0"},
		"name=a,path=/a,overcommit=NaN":      {"NaN", "above 0"},
		"name=a,path=/a,overcommit=1000":     {"1000", "at most 100"},
		"name=a,path=/a,reserved=100%":       {`"100%"`, "below 100%"},
		"name=a,path=/a,reserved=-1":         {`"-1"`, "10Gi"},
		"name=a,path=/a,reserved=5GB":        {`"5GB"`, "10Gi"},
		"name=a,path=/a,reserved=9999999Ti":  {"9999999Ti", "10Gi"},
		"name=a,path=/a,trashRetention=1":    {`"1"`, "24h"},
		"name=a,path=/a,trashRetention=-1h":  {"-1h", "24h", "0s"},
		"name=a,path=/a,trashRetention=-1ns": {"-1ns", "24h", "0s"},
		"name=a,path=":                       {`"path="`, "key=value"},
	} {
		t.Run(s, func(t *testing.T) { fails(ParsePool(s, time.ParseDuration))(t, backend.ErrInvalid, words...) })
	}
}

func FuzzParsePool(f *testing.F) {
	f.Add("name=fast,engine=image,path=/srv/fast,overcommit=1.0,reserved=5%")
	f.Add("name=a,path=/a,reserved=10Gi,trashRetention=1h")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParsePool(s, time.ParseDuration)
		if err != nil {
			return
		}
		keep, err := backend.ParseReserve(c.Reserved)
		if err != nil || keep.Of(1<<50) < 0 || !strings.HasPrefix(c.Path, "/") || c.Overcommit <= 0 {
			t.Errorf("%q was accepted as %+v (reserve %v, %v)", s, c, keep, err)
		}
	})
}

func FuzzParseMeta(f *testing.F) {
	f.Add([]byte(`{"version":1,"id":"a","name":"a","content":{"size":1048576,"mode":"Filesystem"},"charge":1048576}`), "a")
	f.Add([]byte(`{"version":2}`), "a")
	f.Add([]byte(`{"version":1,"id":"../x"}`), "a")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		id, err := backend.ParseID(name)
		if err != nil {
			return
		}
		m, err := parseMeta(data, id)
		if (m == nil) == (err == nil) {
			t.Fatalf("%q gave %v, %v", data, m, err)
		}
		if m != nil && (m.ID != id || m.Content.Size < 0 || m.Charge < 0 || m.Version != version) {
			t.Errorf("%q was accepted as %+v", data, m)
		}
	})
}
