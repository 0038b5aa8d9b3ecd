// Package explore searches small worlds of production members exhaustively, for what breaks the protocol.
package explore
