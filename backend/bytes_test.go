package backend

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestParseBytes_ReadsThemAsKubernetesWritesThem(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "0Gi": 0, "1": 1, "1073741824": 1 << 30, "1Gi": 1 << 30, "512Mi": 512 << 20, "3k": 3000, "2G": 2e9, "1Ti": 1 << 40, "7Ei": 7 << 60,
		"9223372036854775807": math.MaxInt64, "007": 7,
	} {
		if got, err := ParseBytes(s); err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v, want %d", s, got, err, want)
		}
	}
	for s, want := range map[string]error{
		"": ErrInvalid, "-1": ErrInvalid, "+1": ErrInvalid, "1.5Gi": ErrInvalid, "1gi": ErrInvalid, "Gi": ErrInvalid, "1Gi ": ErrInvalid,
		"1e9": ErrInvalid, "ten": ErrInvalid,
		"9223372036854775808": ErrOutOfRange, "8Ei": ErrOutOfRange, "99999999999999999999999999": ErrOutOfRange,
	} {
		if _, err := ParseBytes(s); !errors.Is(err, want) || !strings.Contains(err.Error(), Quote(s)) {
			t.Errorf("ParseBytes(%q) = %v, want %v that names it", s, err, want)
		}
	}
}

func FuzzParseBytes(f *testing.F) {
	for _, seed := range []string{"", "1", "512Mi", "8Ei", "1e9", "1.5Gi", "٣"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseBytes(s); n < 0 || err != nil && (n != 0 || FindCode(err) == "") {
			t.Errorf("%q is %d, %v", s, n, err)
		}
	})
}

func TestReadable_IsShortAndKeepsNearlyEqualSizesApart(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0", 1000: "1000", 1024: "1Ki", 1 << 30: "1Gi", 1<<30 - 1: "1023Mi", 12<<30 + 512<<20: "12800Mi", 12<<30 + 200<<20: "12488Mi", 5 << 40: "5Ti",
		20<<30 + 1: "20480Mi", 2000 << 30: "2000Gi", -5: "-5",
	} {
		if got := Readable(bytes); got != want {
			t.Errorf("%d bytes are %s, want %s", bytes, got, want)
		}
	}
}
