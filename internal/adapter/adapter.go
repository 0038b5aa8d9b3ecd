// Package adapter is what ctrlrt needs of a rota and users must not have: with the methods of a Share or a Gate that
// open slots, a program could work on objects of other members.
package adapter

import (
	"github.com/rota-dev/rota/delivery"
	"github.com/rota-dev/rota/gate"
)

// Parts are those of one rota.
type Parts struct {
	Share *delivery.Share
	Gate  *gate.Gate
}

// Of returns the parts of a *rota.Rota, and panics with anything else. Package rota sets it when it is initialized.
var Of func(rota any) Parts
