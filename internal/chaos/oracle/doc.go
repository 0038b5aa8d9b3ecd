// Package oracle judges what a rota did while a fault lasted, and after it. It knows nothing of the members but records that
// they cannot dress up, and asks no clock, no API server and no code that members run, except for what a key's slot is and how a
// table is written.
package oracle
