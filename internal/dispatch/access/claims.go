package access

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"
)

// claims are the claims in a JSON Web Token (RFC 7519). They are not verified. They only decide which limit a token
// counts against and when it is reviewed again, never whether it is accepted.
type claims struct {
	Audience audiences `json:"aud"`
	Expires  float64   `json:"exp"` // Unix seconds; 0 if missing
}

// audiences is one audience, or a list.
type audiences []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audiences) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audiences{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}

// claimsOf returns a token's claims. They are empty if it is not a JSON Web Token.
func claimsOf(token string) (c claims) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims{}
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &c) != nil {
		return claims{}
	}
	return c
}

// expires is when the token expires, or zero if that is unknown.
func (c claims) expires() time.Time {
	if c.Expires <= 0 || c.Expires > math.MaxInt32*100 {
		return time.Time{}
	}
	return time.Unix(int64(c.Expires), 0)
}

// clocksDiffer bounds the difference between this machine's clock and the API server's.
const clocksDiffer = time.Minute

// looksValid reports whether a token claims to be for the audience and not expired.
func looksValid(token, audience string, now time.Time) bool {
	c := claimsOf(token)
	end := c.expires()
	return slices.Contains(c.Audience, audience) && (end.IsZero() || now.Before(end.Add(clocksDiffer)))
}
